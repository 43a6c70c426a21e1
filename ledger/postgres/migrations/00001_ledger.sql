-- +goose Up

-- A migration that waits for a lock makes everybody else wait behind it: give up
-- soon, and let the migrator try again.
set local lock_timeout = '2s';

-- Tables live in a schema of their own, and every statement names it: users commit
-- their own rows in the same database, and search_path does not survive a
-- transaction-pooling proxy.

-- One row per worker process. Jobs name (id, epoch) and hold no lease time, so a
-- renewal is one small HOT update however many jobs run. The only table without
-- a tenant: in a distributed database it is a reference table.
create table paidonce.worker (
  id          text primary key,
  epoch       bigint not null,
  lease_until timestamptz not null,
  closed_at   timestamptz,               -- the epoch is closed: its jobs are free
  host        text not null,
  pid         int not null,
  version     text not null,
  config      text not null,             -- hash of the effective configuration
  joined_at   timestamptz not null default clock_timestamp(),
  check (epoch > 0)
) with (fillfactor = 50);

-- For sweepers: dead workers stay in the table.
create index worker_open on paidonce.worker (id) where closed_at is null;

-- One row per business action. It is narrow and unpartitioned: a unique key cannot
-- span time partitions. What a money guard needs is on this row, because a
-- sub-select on another table would read the statement's old snapshot.
create table paidonce.job (
  tenant       text not null check (tenant <> ''),
  id           bigint generated always as identity,
  key          text not null check (key <> ''),
  action       text not null,
  input_hash   bytea not null check (octet_length(input_hash) = 32),
  input_kept   boolean not null,         -- there is a row in input
  part_on      date not null,            -- of all children: they are dropped by it
  state        text not null check (state in ('ready', 'running', 'unknown', 'done', 'failed', 'cancelled')),
  generation   int not null default 1 check (generation > 0),
  fence        bigint not null check (fence > 0),
  carrier      text not null check (carrier in ('broker', 'ledger')),
  owner        text,
  owner_epoch  bigint,
  claim_token  uuid,                     -- of the claim that runs it: a repeated claim is recognised
  run_deadline timestamptz,
  next_at      timestamptz not null,     -- due for a run, or for a look when unknown
  unknown_at   timestamptz,              -- since when
  cancel       boolean not null default false,
  runs         int not null check (runs >= 0),
  panics       int not null default 0 check (panics >= 0),
  replays      int not null default 0 check (replays >= 0),
  receives     int not null default 0,
  open_calls   int not null default 0 check (open_calls >= 0),
  open_until   timestamptz,              -- until then an open attempt may land
  attempts     int not null default 0,   -- number of the last attempt
  events       int not null,             -- number of the last event
  late         bigint not null default 0, -- answers that came under an older fence
  cost         bigint,                   -- nano-USD, of the attempts whose cost is known; null: of none
  reserved     bigint not null default 0 check (reserved >= 0),
  budget       bigint not null default 0 check (budget >= 0), -- 0: none
  error_class  text,
  error_text   text,
  result_id    uuid,
  created_at   timestamptz not null,
  updated_at   timestamptz not null,
  done_at      timestamptz,
  primary key (tenant, id),
  unique (tenant, key),
  constraint running_has_owner check (state <> 'running' or (owner is not null and claim_token is not null and run_deadline is not null)),
  constraint only_running_has_token check (state = 'running' or (claim_token is null and run_deadline is null)),
  constraint owner_has_epoch check ((owner is null) = (owner_epoch is null)),
  constraint only_open_has_owner check (owner is null or state in ('running', 'unknown')),
  constraint unknown_has_open_calls check (state <> 'unknown' or open_calls > 0),
  constraint only_open_has_open_calls check (open_calls = 0 or state in ('running', 'unknown')),
  constraint open_calls_have_horizon check ((open_calls > 0) = (open_until is not null)),
  constraint unknown_has_since check ((state = 'unknown') = (unknown_at is not null)),
  constraint done_has_result check (state <> 'done' or (result_id is not null and done_at is not null)),
  constraint failed_has_error check (state <> 'failed' or error_class is not null),
  constraint ledger_carries_input check (carrier = 'broker' or input_kept)
) with (fillfactor = 70); -- room on the page: most updates are HOT

-- The one index for sweepers, reconcilers and the jobs of a worker. It has no
-- time in it: with next_at or a lease time no update of a job would be HOT.
create index job_open on paidonce.job (state, owner) where state in ('ready', 'running', 'unknown');

-- Rules that a CHECK cannot say, since it sees one version of the row.
-- +goose StatementBegin
create function paidonce.refuse() returns trigger language plpgsql as $$
begin
  raise exception '% (% %)', tg_argv[0], tg_table_name, new.id using errcode = 'check_violation';
end $$;
-- +goose StatementEnd

create trigger done_is_final before update on paidonce.job for each row
  when (old.state = 'done' and new.generation = old.generation
        and (new.state <> 'done' or new.result_id is distinct from old.result_id))
  execute function paidonce.refuse('a done job changes by a new generation only');

create trigger fence_grows before update on paidonce.job for each row
  when (new.fence < old.fence or new.generation < old.generation or new.part_on <> old.part_on)
  execute function paidonce.refuse('fence and generation never shrink, and part_on stays');

-- Children. part_on always comes from the job row, so that a job's children are in
-- one partition each and their keys stay unique. No foreign keys: a partition is
-- dropped whole.

create table paidonce.attempt (
  tenant            text not null,
  job               bigint not null,
  id                uuid not null,       -- chosen by the worker before the gate
  part_on           date not null,
  generation        int not null,
  n                 int not null,
  fence             bigint not null,     -- of the run that sent it
  state             text not null check (state in ('sent', 'received', 'rejected', 'failed', 'not_sent', 'unknown')),
  call_name         text not null,
  input_key         text not null,
  route             text not null,
  provider          text not null,
  model             text not null,
  config            text not null,
  client_request_id text not null,
  timeout           interval not null,
  reserve           bigint not null check (reserve >= 0),
  late_seen         bigint not null,
  sent_at           timestamptz not null,
  ended_at          timestamptz,
  class             text not null default '',
  seen_by           text not null default '', -- kind of actor
  who               text not null default '',
  reason            text not null default '',
  status            int not null default 0,
  provider_request_id text not null default '',
  object_id         text not null default '',
  first_byte        interval,
  tokens_in         bigint,
  tokens_cached     bigint,
  tokens_out        bigint,
  cost              bigint,              -- null: unknown, never 0
  cost_source       text not null default '',
  surplus           boolean not null default false,
  captured          int,                 -- number of the event that captured its answer: the first one wins
  primary key (tenant, job, id, part_on),
  check ((state = 'sent') = (ended_at is null)),
  check ((state = 'received') = (captured is not null))
) partition by range (part_on);

create trigger received_is_final before update on paidonce.attempt for each row
  when (old.state = 'received' and new.state <> 'received')
  execute function paidonce.refuse('a received attempt never changes its state');

-- Captured answers, kept whether or not anybody needed them.
create table paidonce.response (
  tenant  text not null,
  job     bigint not null,
  attempt uuid not null,
  part_on date not null,
  codec   text not null,
  body    bytea compression lz4 not null, -- pglz costs 3-4 times the CPU
  primary key (tenant, job, attempt, part_on)
) partition by range (part_on);

create table paidonce.result (
  tenant      text not null,
  job         bigint not null,
  generation  int not null,
  part_on     date not null,
  id          uuid not null,
  schema_name text not null,
  body        bytea compression lz4 not null,
  primary key (tenant, job, generation, part_on)
) partition by range (part_on);

create table paidonce.input (
  tenant  text not null,
  job     bigint not null,
  part_on date not null,
  body    bytea compression lz4 not null,
  primary key (tenant, job, part_on)
) partition by range (part_on);

-- Every transition of every job, written in its statement.
create table paidonce.event (
  tenant     text not null,
  job        bigint not null,
  n          int not null,
  part_on    date not null,
  at         timestamptz not null,
  from_state text not null,              -- '' before the first
  to_state   text not null,
  actor      text not null,
  reason     text not null,
  primary key (tenant, job, n, part_on)
) partition by range (part_on);

-- A net: rows land here when nobody made partitions ahead. ensure_partitions
-- moves them out again.
create table paidonce.attempt_default partition of paidonce.attempt default;
create table paidonce.response_default partition of paidonce.response default;
create table paidonce.result_default partition of paidonce.result default;
create table paidonce.input_default partition of paidonce.input default;
create table paidonce.event_default partition of paidonce.event default;

-- ensure_partitions makes the partitions of the time from now to now + ahead that
-- are missing, and returns how many it made: weeks for bodies, which are big and kept
-- for short, months for the rest. It runs with the rights of the tables' owner,
-- so that workers need none to create tables. One caller at a time.
-- +goose StatementBegin
create function paidonce.ensure_partitions(ahead interval) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
  t record;
  low date; high date; part text; made int := 0; today date := (now() at time zone 'utc')::date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.ensure_partitions'));
  for t in select * from (values ('attempt', 'month'), ('event', 'month'),
      ('response', 'week'), ('result', 'week'), ('input', 'week')) v(name, unit) loop
    low := date_trunc(t.unit, today::timestamp)::date;
    while low <= today + ahead loop
      high := (low + ('1 ' || t.unit)::interval)::date;
      part := format('%s_%s', t.name, to_char(low, 'YYYYMMDD'));
      if to_regclass('paidonce.' || part) is null then
        -- Not "create … partition of": that fails when the net holds such rows.
        execute format('create table paidonce.%I (like paidonce.%I including all)', part, t.name);
        execute format('with net as (delete from paidonce.%I where part_on >= %L and part_on < %L returning *)
                        insert into paidonce.%I select * from net', t.name || '_default', low, high, part);
        execute format('alter table paidonce.%I attach partition paidonce.%I for values from (%L) to (%L)',
                       t.name, part, low, high);
        made := made + 1;
      end if;
      low := high;
    end loop;
  end loop;
  return made;
end $$;
-- +goose StatementEnd

select paidonce.ensure_partitions('45 days');
