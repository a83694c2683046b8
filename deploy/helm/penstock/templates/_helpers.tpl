{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-penstock" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The metadata of an object: a dict with `root` and, if it has them, a `suffix` of the name, `labels` and `annotations`. */}}
{{- define "penstock.metadata" -}}
name: {{ include "penstock.name" .root }}{{ .suffix }}
labels:
  {{- include "penstock.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "penstock.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- define "penstock.secret" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}{{ else if .Values.secrets }}{{ include "penstock.name" . }}{{ end }}
{{- end }}

{{- define "penstock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- end }}

{{/* Whether several gateways share the ledger. */}}
{{- define "penstock.several" -}}
{{- if .Values.autoscaling.enabled }}{{ if gt (int .Values.autoscaling.maxReplicas) 1 }}true{{ end }}{{ else if gt (int .Values.replicas) 1 }}true{{ end }}
{{- end }}

{{/* The file with the authorities that the gateway trusts, if there is a private one. */}}
{{- define "penstock.authorities" -}}
{{- with .Values.authorities }}{{ if .file }}{{ if .alone }}/run/penstock/{{ .file }}{{ else }}/run/authorities/all.pem{{ end }}{{ end }}{{ end }}
{{- end }}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The configuration, with the tables that follow from other values. */}}
{{- define "penstock.config" -}}
{{ .Values.config | trim }}
{{- range $listener := list "server" "admin" }}
{{- with get $.Values.tls $listener }}
{{- if .folder }}

[{{ $listener }}.tls]
certificate = "/run/penstock/{{ .folder }}/{{ .certificate }}"
key = "/run/penstock/{{ .folder }}/{{ .key }}"
{{- with .clientCa }}
client_ca = "/run/penstock/{{ $.Values.tls.admin.folder }}/{{ . }}"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{ end }}

{{/* Without constraints of the operator: over zones and over nodes, as far as there is room. */}}
{{- define "penstock.spread" -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
{{- end }}
{{- end }}

{{/* The pod of `helm test` must not be an endpoint of the Services. */}}
{{- define "penstock.testLabels" -}}
app.kubernetes.io/name: penstock-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
