-- The user's rows are committed in the same file, so every name of ours begins with
-- paidonce_. Times are microseconds since 1970 in UTC, of the clock of the process that
-- wrote them; money is nano-USD, never a real; ids and hashes are blobs.

-- One row per worker process. Jobs name (id, epoch) and hold no lease time, so a
-- renewal is one small update however many jobs run. The only table without a tenant.
create table paidonce_worker (
  id          text not null primary key,
  epoch       integer not null check (epoch > 0),
  lease_until integer not null,
  closed_at   integer,                   -- the epoch is closed: its jobs are free
  host        text not null,
  pid         integer not null,
  version     text not null,
  config      text not null,             -- hash of the effective configuration
  joined_at   integer not null
) strict, without rowid;

-- One row per business action, without bodies: what a guard needs is on it.
create table paidonce_job (
  tenant       text not null check (tenant <> ''),
  id           integer not null,         -- counted within the tenant
  key          text not null check (key <> ''),
  action       text not null,
  input_hash   blob not null check (length(input_hash) = 32),
  input_kept   integer not null check (input_kept in (0, 1)), -- there is a row in input
  state        text not null check (state in ('ready', 'running', 'unknown', 'done', 'failed', 'cancelled')),
  generation   integer not null default 1 check (generation > 0),
  fence        integer not null check (fence > 0),
  carrier      text not null check (carrier in ('broker', 'ledger')),
  owner        text,
  owner_epoch  integer,
  claim_token  blob,                     -- of the claim that runs it: a repeated claim is recognised
  run_deadline integer,
  next_at      integer not null,         -- due for a run, or for a look when unknown
  unknown_at   integer,                  -- since when
  cancel       integer not null default 0 check (cancel in (0, 1)),
  runs         integer not null check (runs >= 0),
  panics       integer not null default 0 check (panics >= 0),
  replays      integer not null default 0 check (replays >= 0),
  receives     integer not null default 0,
  open_calls   integer not null default 0 check (open_calls >= 0),
  attempts     integer not null default 0, -- number of the last attempt
  events       integer not null default 0, -- number of the last event
  late         integer not null default 0, -- answers that came under an older fence
  cost         integer,                  -- of the attempts whose cost is known; null: of none
  reserved     integer not null default 0 check (reserved >= 0),
  budget       integer not null default 0 check (budget >= 0), -- 0: none
  error_class  text,
  error_text   text,
  result_id    blob,
  origin       text,                     -- JSON: what is known of its message beside the content
  created_at   integer not null,
  updated_at   integer not null,
  done_at      integer,
  primary key (tenant, id),
  unique (tenant, key),
  constraint running_has_owner check (state <> 'running' or (owner is not null and claim_token is not null and run_deadline is not null)),
  constraint only_running_has_token check (state = 'running' or (claim_token is null and run_deadline is null)),
  constraint owner_has_epoch check ((owner is null) = (owner_epoch is null)),
  constraint only_open_has_owner check (owner is null or state in ('running', 'unknown')),
  constraint unknown_has_open_calls check (state <> 'unknown' or open_calls > 0),
  constraint only_open_has_open_calls check (open_calls = 0 or state in ('running', 'unknown')),
  constraint unknown_has_since check ((state = 'unknown') = (unknown_at is not null)),
  constraint done_has_result check (state <> 'done' or (result_id is not null and done_at is not null)),
  constraint failed_has_error check (state <> 'failed' or error_class is not null),
  constraint ledger_carries_input check (carrier = 'broker' or input_kept)
) strict, without rowid;

-- For sweepers, reconcilers and the jobs of a worker. It has no time in it, and an
-- update within a run does not touch it. SQLite uses it for statements that repeat its
-- condition, word for word.
create index paidonce_job_open on paidonce_job (state, owner) where state in ('ready', 'running', 'unknown');

-- Rules that a CHECK cannot say, since it sees one version of the row.
create trigger paidonce_done_is_final before update on paidonce_job
  when old.state = 'done' and new.generation = old.generation and (new.state <> 'done' or new.result_id is not old.result_id)
begin
  select raise(abort, 'a done job changes by a new generation only');
end;

create trigger paidonce_fence_grows before update on paidonce_job
  when new.fence < old.fence or new.generation < old.generation
begin
  select raise(abort, 'fence and generation never shrink');
end;

-- Children. Their keys begin as the job's does, so that the rows of a job lie together.

create table paidonce_attempt (
  tenant            text not null,
  job               integer not null,
  id                blob not null,       -- chosen by the worker before the gate
  generation        integer not null,
  n                 integer not null,
  fence             integer not null,    -- of the run that sent it
  state             text not null check (state in ('sent', 'received', 'rejected', 'failed', 'not_sent', 'unknown')),
  call_name         text not null,
  input_key         text not null,
  route             text not null,
  provider          text not null,
  model             text not null,
  config            text not null,
  client_request_id text not null,
  timeout           integer not null,    -- microseconds
  reserve           integer not null check (reserve >= 0),
  late_seen         integer not null,
  sent_at           integer not null,
  ended_at          integer,
  class             text not null default '',
  seen_by           text not null default '', -- kind of actor
  who               text not null default '',
  reason            text not null default '',
  status            integer not null default 0,
  provider_request_id text not null default '',
  object_id         text not null default '',
  first_byte        integer,             -- microseconds from the send
  tokens_in         integer,
  tokens_cached     integer,
  tokens_out        integer,
  cost              integer,             -- null: unknown, never 0
  cost_source       text not null default '',
  surplus           integer not null default 0 check (surplus in (0, 1)),
  captured          integer,             -- number of the event that captured its answer: the first one wins
  primary key (tenant, job, id),
  check ((state = 'sent') = (ended_at is null)),
  check ((state = 'received') = (captured is not null))
) strict, without rowid;

create trigger paidonce_received_is_final before update on paidonce_attempt
  when old.state = 'received' and new.state <> 'received'
begin
  select raise(abort, 'a received attempt never changes its state');
end;

-- Bodies are in tables with rowids: SQLite keeps large rows better there.

-- Captured answers, kept whether or not anybody needed them.
create table paidonce_response (
  tenant  text not null,
  job     integer not null,
  attempt blob not null,
  codec   text not null,
  body    blob not null,
  primary key (tenant, job, attempt)
) strict;

create table paidonce_result (
  tenant      text not null,
  job         integer not null,
  generation  integer not null,
  id          blob not null,
  schema_name text not null,
  body        blob not null,
  primary key (tenant, job, generation)
) strict;

create table paidonce_input (
  tenant  text not null,
  job     integer not null,
  body    blob not null,
  primary key (tenant, job)
) strict;

-- Every transition of every job, written in its transaction.
create table paidonce_event (
  tenant     text not null,
  job        integer not null,
  n          integer not null,
  at         integer not null,
  from_state text not null,              -- '' before the first
  to_state   text not null,
  actor      text not null,
  reason     text not null,
  primary key (tenant, job, n)
) strict, without rowid;
