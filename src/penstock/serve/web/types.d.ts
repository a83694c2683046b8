// Types of the page: the answers of the admin API (docs/admin.md) and what its modules pass to each other.
// Only the type checker and editors read this file; the gateway does not serve it.

export type Child = Node | string | number | boolean | null | undefined | Child[];

export interface Attributes {
  [name: string]: string | number | boolean | null | undefined | ((event: any) => unknown);
}

/** A place on the page, as the address bar has it: `#/calls/req_1?outcome=failed`. */
export interface Address {
  view: string;
  id: string;
  query: URLSearchParams;
}

export interface MountedView {
  update?(address: Address): void;
  close?(): void;
}

export interface View {
  title: string;
  mount(root: HTMLElement, address: Address): MountedView | void;
}

/** The user of the page (`/admin/me`). `routes` are the requests that its roles allow, such as `GET /admin/keys/{id}`. */
export interface User {
  name: string;
  role: string | null;
  permissions: string[];
  routes: string[];
  teams: { team: string; role: string }[];
  can_sign_out: boolean;
}

/** What clients need to use the gateway (`/admin/connect`). */
export interface Connection {
  public_url: string | null;
  listening: string[];
  tls: boolean;
  models: string[];
}

/** The set-up of clients (`/connect.json`), with the address and the model that the page replaces. */
export interface Setups {
  address: string;
  model: string;
  clients: { group: string; name: string; steps: { text?: string; code?: string; language?: string }[] }[];
}

export type Filters = URLSearchParams | Record<string, string | null | undefined>;
export type Counts = Record<string, number>;

/** A running call, or one that has just ended, in a message of `/admin/live`. */
export interface LiveCall {
  id: string;
  model: string;
  provider: string | null;
  key: string | null;
  key_name: string | null;
  phase: 'waiting' | 'streaming' | 'draining' | 'over';
  outcome?: string;
  tokens: number;
  tokens_per_s: number | null;
  first_event_ms: number | null;
  /** The time since the last event; null when it has ended. */
  silent_ms: number | null;
  longest_gap_ms: number;
  gaps_ms: number[];
  cost: string | null;
  content: boolean;
  /** Whether it runs on another gateway, which alone has its text. */
  elsewhere?: boolean;
}

/**
 * One message of `/admin/live`. `total` counts all running calls, `found` those that match the search, `gateways` all that
 * use the ledger (null if that is not known), and `answered` those whose calls are included.
 */
export interface LiveSnapshot {
  gateways: number | null;
  answered: number;
  total: number;
  found: number;
  streams_per_s: number;
  next: string | null;
  calls: LiveCall[];
}

/** Requests that were rejected, of one key from one address for one reason. */
export interface Rejection {
  /** Empty if the key is not known. */
  key: string;
  key_name: string;
  address: string;
  reason: string;
  count: number;
  first: string;
  last: string;
}

export interface Priced {
  cost: string | null;
  approximate: boolean | number;
}

export interface Attempt extends Priced {
  provider: string;
  model: string;
  outcome: string;
  status: number;
  code: string | null;
  /** What the code means. */
  error: string | null;
  measure: string;
  tokens: Counts;
  price: string | null;
  tier: string | null;
  began_ms: number;
  first_event_ms: number | null;
  duration_ms: number;
  events: number;
  longest_gap_ms: number;
  stalls: [number, number][];
}

/** A call in the ledger. */
export interface Entry extends Priced {
  id: string;
  at: string;
  key: string | null;
  surface: string;
  model: string;
  stream: boolean;
  outcome: string;
  status: number;
  code: string | null;
  /** The sentence of the error that the client got. */
  error: string | null;
  first_event_ms: number | null;
  duration_ms: number;
  measure: string;
  tokens: Counts;
  repairs: Counts;
  losses: Counts;
  tags: Record<string, string>;
  user: string | null;
  attempts: Attempt[];
}

export interface RateLimits {
  requests_per_minute: number | null;
  tokens_per_minute: number | null;
  concurrent: number | null;
}

/** The limits of each end user: budgets by period, and rates. */
export interface UserLimits extends RateLimits {
  budgets: Record<string, string>;
}

/** The policy for keys that members of a team create. */
export interface KeyPolicy extends UserLimits {
  number: number | null;
  days: number | null;
  models: string[];
  raised_by: 'team_admin' | 'admin';
}

export interface RaisedLimits extends UserLimits {
  models: string[];
}

/** A request of a member for more. */
export interface LimitRequest {
  id: string;
  created: string;
  who: string;
  team: string;
  key: string | null;
  key_name: string | null;
  wanted: RaisedLimits;
  present: RaisedLimits | null;
  reason: string;
  state: 'open' | 'approved' | 'refused' | 'expired';
  answered: string | null;
  answered_by: string | null;
  note: string;
  granted: RaisedLimits | null;
  own: boolean;
  may_answer: boolean;
}

/** A member of a team, with its limits over all its keys. */
export interface Member extends RateLimits {
  team: string;
  member: string;
  name: string;
  keys: number;
  raised: boolean;
  budgets: PeriodBudget[];
  spent_this_month: string;
}

export interface Key extends RateLimits {
  id: string;
  name: string;
  hint: string;
  state: 'active' | 'blocked' | 'revoked' | 'expired';
  created: string;
  rotated: string | null;
  previous_until: string | null;
  expires: string | null;
  revoked: string | null;
  blocked: string | null;
  budget: string | null;
  period: string;
  spent: string;
  left: string | null;
  renewed: string | null;
  models: string[];
  strict: boolean;
  client_credentials: string[];
  tags: Record<string, string>;
  team: string | null;
  owner: string | null;
  managed_by: string | null;
  /** Further budgets, of other periods. */
  budgets: PeriodBudget[];
  end_users: UserLimits;
}

/** What is spent and left of a budget of one period. */
export interface PeriodBudget {
  period: string;
  budget: string;
  spent: string;
  left: string;
  renewed: string | null;
}

export interface Team extends RateLimits {
  path: string;
  level: 'organisation' | 'team' | 'project';
  state: 'active' | 'blocked';
  managed_by: string | null;
  created: string;
  blocked: string | null;
  budgets: PeriodBudget[];
  spent_this_month: string;
  end_users: UserLimits;
  members: UserLimits;
  member_keys: KeyPolicy;
  models: string[];
  /** The number of usable keys of it and below it. */
  keys: number;
}

/** What is kept of a call: the request as the client sent it, and a message for each choice. */
export interface KeptContent {
  request: Record<string, any>;
  answer: any[];
  left_out: string[];
}

export interface AuditEntry {
  at: string;
  who: string;
  via: string;
  address: string;
  action: string;
  subject: string;
  before: Record<string, unknown>;
  after: Record<string, unknown>;
}

export type FormValues = Record<string, unknown>;

/** A field of a form. `list` is a list separated by commas, `pairs` are `name=value`, separated by commas. */
export interface FormField {
  name: string;
  label: string;
  kind?: 'text' | 'number' | 'select' | 'check' | 'list' | 'pairs';
  options?: string[][];
  hint?: string;
  placeholder?: string;
  /** Two fields stand beside each other. */
  half?: boolean;
}

export interface UsageRow extends Priced {
  group: Record<string, string>;
  cost: string;
  converted: string | null;
  calls: number;
  input: number;
  output: number;
  cached: number;
  saved: string;
  unpriced: number;
  estimated: number;
}

export interface Percentiles {
  p50: number | null;
  p95: number | null;
}

export interface HealthBucket extends Percentiles {
  at_ms: number;
  attempts: number;
  outcomes: Counts;
  repairs: Counts;
  usage_missing: number;
}

export interface HealthRow {
  provider: string;
  model: string;
  attempts: number;
  outcomes: Counts;
  first_event_ms: Percentiles;
  longest_gap_ms: Percentiles;
  repairs: Counts;
  usage_missing: number;
  buckets: HealthBucket[];
}

export interface HealthReport {
  since: number;
  bucket_ms: number;
  rows: HealthRow[];
}

/** A provider in `/admin/setup`. `problem` is why it cannot answer, as far as is known without a call. */
export interface ProviderSetup {
  name: string;
  origin: string;
  url: string | null;
  local_model: string | null;
  replay: string | null;
  dialects: string[];
  /** The variable or file that its key was read from. */
  key: string | null;
  keys: string[];
  models: string[];
  cooling_s: Counts;
  problem: string | null;
}

/** A key in `/admin/provider-keys`. `requests` and `tokens` are those of the last minute; null without limits. */
export interface ProviderKey {
  provider: string;
  key: string;
  account: string | null;
  rpm: number | null;
  tpm: number | null;
  requests: number | null;
  tokens: number | null;
  cooling_s: Counts;
}

export interface RouteSetup {
  name: string;
  pattern: boolean;
  strict: boolean;
  weighted: boolean;
  targets: { target: string; provider: string; weight: number | null; available: boolean }[];
}

export interface Setup {
  source: string;
  providers: ProviderSetup[];
  routes: RouteSetup[];
  not_configured: { name: string; variable: string }[];
}

/** A defect that `/admin/inspect` found. `offset` and `length` count bytes. */
export interface Finding {
  code: string;
  level: 'fault' | 'repair' | 'notice';
  line: number;
  offset: number;
  length?: number;
  meaning?: string;
  what_is_done?: string;
}

export interface OutputPart {
  type: string;
  text?: string;
  name?: string;
  arguments?: string;
  native_type?: string;
  mime?: string;
}

export interface Inspection {
  findings: Finding[];
  findings_left_off: number;
  ending: string | null;
  text?: string;
  choices?: { parts: OutputPart[] }[];
  usage?: { input: number; output: number } | null;
  model?: string | null;
  provider?: string | null;
  dialect?: string;
  dialect_found_by?: string;
  frames: number;
  fault?: { code: string; message?: string } | null;
}

/** An API that clients can speak. */
export interface ApiName {
  name: string;
  title: string;
}

/** What the playground sends; `maxTokens` is 0 without a limit. */
export interface Prompt {
  model: string;
  turns: Turn[];
  system: string;
  maxTokens: number;
  temperature: number | null;
  tools: { name: string; description?: string; parameters?: object }[];
}

/** One message of a conversation. `results` are those of the calls of the turn before. */
export interface Turn {
  role: 'user' | 'assistant';
  text: string;
  images: { name: string; url: string }[];
  calls: ToolCall[];
  results: { id: string; name: string; text: string }[];
}

/** A call of a tool; `args` is JSON. */
export interface ToolCall {
  id: string;
  name: string;
  args: string;
}

/** What an event of a streamed answer says. */
export interface StreamNews {
  done: boolean;
  error?: string;
  usage?: { input: number; output: number };
  deltas: OutputDelta[];
}

/** A piece of a model's output. `part` identifies a tool call. */
export interface OutputDelta {
  text: string;
  kind: 'text' | 'reasoning' | 'tool';
  choice?: number;
  part?: string;
  call?: ToolCall;
}

export interface TimeColumn {
  at_ms: number;
}

export interface BarColumn extends TimeColumn {
  parts: Counts;
  title: string;
}

export interface StripCell extends TimeColumn {
  share: number;
  title: string;
}
