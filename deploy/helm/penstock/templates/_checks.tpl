{{/* What the schema cannot say: values that contradict each other or the configuration. Each line is a mistake, and what to do. */}}
{{- define "penstock.mistakes" -}}
{{- $config := regexReplaceAll "(?m)^\\s*#.*$" .Values.config "" }}
{{- if and (include "penstock.several" .) (not (regexMatch "(?m)^\\s*(ledger\\.)?postgres\\s*=" $config)) }}
- there are several gateways (replicas, autoscaling), and config has no [ledger] postgres: gateways cannot share an SQLite file. Set [ledger] postgres in config, or replicas to 1.
{{- end }}
{{- if not (regexMatch "listen\\s*=\\s*\"(0\\.0\\.0\\.0|\\[::\\]):8080\"" $config) }}
- config must have [server] listen = "0.0.0.0:8080": the Services and probes of the chart use the ports 8080 and 8081.
{{- end }}
{{- if and (or .Values.adminIngress.enabled .Values.adminHttpRoute.enabled .Values.serviceMonitor.enabled) (not (regexMatch "listen\\s*=\\s*\"(0\\.0\\.0\\.0|\\[::\\]):8081\"" $config)) }}
- config must have [admin] listen = "0.0.0.0:8081": adminIngress, adminHttpRoute and serviceMonitor use this port.
{{- end }}
{{- $server := regexFind "(?ms)^\\s*\\[server\\]\\s*$.*?(^\\s*\\[|\\z)" $config }}
{{- $drain := regexFind "drain_s\\s*=\\s*[0-9.]+" $server | regexFind "[0-9.]+$" }}
{{- if and $server (not (contains "drain_s" $server)) }}{{ $drain = "30" }}{{ end }}
{{- if and $drain (ne (float64 $drain) (float64 .Values.drainSeconds)) }}
- [server] drain_s is {{ $drain }} in config, and drainSeconds is {{ .Values.drainSeconds }}: write drain_s = "${PENSTOCK_DRAIN_S}" in config, which has the value of drainSeconds.
{{- end }}
{{- range $listener := list "server" "admin" }}
{{- if regexMatch (printf "(?m)^\\s*\\[%s\\.tls\\]" $listener) $config }}
- config has [{{ $listener }}.tls]: set tls.{{ $listener }}.folder instead, so that probes and Services use TLS too.
{{- end }}
{{- end }}
{{- $folders := list }}
{{- range $listener := list "server" "admin" }}
{{- with get (get $.Values.tls $listener) "folder" }}{{ $folders = append $folders (list (printf "tls.%s.folder" $listener) .) }}{{ end }}
{{- end }}
{{- with .Values.authorities.file }}{{ $folders = append $folders (list "authorities.file" (splitList "/" . | first)) }}{{ end }}
{{- range regexFindAll "/run/penstock/[a-z0-9-]+" $config -1 | uniq }}{{ $folders = append $folders (list "config" (base .)) }}{{ end }}
{{- range $folders }}
{{- if not (hasKey $.Values.files (last .)) }}
- {{ first . }} names the folder {{ last . | quote }}, which is not in files{{ with keys $.Values.files | sortAlpha }} ({{ join ", " . }}){{ end }}: add files.{{ last . }}, such as { secret: NAME }.
{{- end }}
{{- end }}
{{- if and .Values.existingSecret .Values.secrets }}
- existingSecret and secrets are both set, and only one of them is used: remove one.
{{- end }}
{{- if not (or .Values.existingSecret .Values.envFrom) }}
{{- $known := concat (keys .Values.secrets) (keys .Values.env) (list "PENSTOCK_DRAIN_S") }}
{{- range .Values.extraEnv }}{{ $known = append $known .name }}{{ end }}
{{- range regexFindAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}" $config -1 | uniq }}
{{- $name := trimSuffix "}" (trimPrefix "${" .) }}
{{- if not (has $name $known) }}
- config needs the variable {{ $name }}, and nothing sets it: name a Secret that has it in existingSecret, or set secrets.{{ $name }} or env.{{ $name }}.
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
- autoscaling.minReplicas is more than autoscaling.maxReplicas.
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.streams) (not .Values.autoscaling.cpu) }}
- autoscaling is enabled, and has nothing to measure: set autoscaling.streams or autoscaling.cpu.
{{- end }}
{{- range $way := list "adminIngress" "adminHttpRoute" }}
{{- with get $.Values $way }}
{{- if .enabled }}
{{- if not (contains .host $config) }}
- {{ $way }}.host is {{ .host }}, and config does not name it: add it to [admin] hosts, and set [admin] url = "https://{{ .host }}".
{{- end }}
{{- if and $.Values.networkPolicy.enabled (not $.Values.networkPolicy.admins) }}
- {{ $way }} is enabled, and the NetworkPolicy lets only pods of the same namespace reach the admin port: add the namespace of the proxy to networkPolicy.admins.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $way := list "httpRoute" "adminHttpRoute" }}
{{- with get $.Values $way }}
{{- if and .enabled (not .parentRefs) }}
- {{ $way }} is enabled, and belongs to no Gateway: set {{ $way }}.parentRefs.
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.serviceMonitor.enabled }}
{{- if and .Values.tls.admin.folder (not .Values.serviceMonitor.tlsConfig) }}
- serviceMonitor is enabled, and the admin port has TLS: set serviceMonitor.tlsConfig, so that Prometheus can verify the certificate (ca, serverName).
{{- end }}
{{- if not (or .Values.serviceMonitor.token.secret (include "penstock.secret" .)) }}
- serviceMonitor is enabled, and has no token for /metrics: set serviceMonitor.token.secret.
{{- end }}
{{- end }}
{{- end }}
