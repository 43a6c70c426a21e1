-- +goose Up

set local lock_timeout = '2s';

-- Deliveries that were answered with a saved result. They are counted here and not on their job's row: a
-- duplicate changes no job. Workers add to it now and then, in batches.
create table paidonce.dup_count (
  tenant   text not null check (tenant <> ''),
  day      date not null,                -- in UTC
  action   text not null,
  cause    text not null check (cause in ('redelivered', 'duplicate_message', 'ack_lost', 'submitted_again')),
  n        bigint not null check (n > 0),
  saved    bigint not null check (saved >= 0), -- nano-USD that the saved results had cost, as far as that is known
  unpriced bigint not null check (unpriced between 0 and n), -- of n, those of results whose cost nobody knows
  primary key (tenant, day, action, cause)
) with (fillfactor = 70); -- room on the page: updates are HOT

-- The latest batch of counts of the worker: a repeated one is recognised.
alter table paidonce.worker add column counted uuid;

-- Up to when something of a tenant was forgotten: what reports count that is dated later is all there.
create table paidonce.floor (
  tenant text not null check (tenant <> ''),
  until  timestamptz not null,
  primary key (tenant)
);

-- For reports of some days. They cost inserts next to nothing, and no update touches them.
create index attempt_sent_at on paidonce.attempt using brin (sent_at) with (autosummarize = on);
create index job_created_at on paidonce.job using brin (created_at) with (autosummarize = on);

-- The functions that forget what reports count, which note it now.

-- +goose StatementBegin
create or replace function paidonce.purge_keys(keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  gone int;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  with old as (
    delete from paidonce.job where ctid = any (array(
      select b.ctid from paidonce.job b
      where b.part_on < ((now() - keep) at time zone 'utc')::date
        and b.state in ('done', 'failed', 'cancelled') and b.updated_at < now() - keep
      limit n for update skip locked))
    returning tenant, id, updated_at
  ), tokens as (
    delete from paidonce.rerun_token r using old where r.tenant = old.tenant and r.job = old.id
  ), noted as (
    insert into paidonce.floor as f (tenant, until) select tenant, max(updated_at) from old group by tenant
    on conflict (tenant) do update set until = greatest(f.until, excluded.until)
  )
  select count(*) into gone from old;
  return gone;
end $$;
-- +goose StatementEnd

-- A job whose row somebody held while its key was to be purged is still there when its attempts go.
-- +goose StatementBegin
create or replace function paidonce.purge_drop(name text, keep_result interval, keep_key interval) returns bigint
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' as $$
declare
  had bigint; parent text; low date; high date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.ensure_partitions'));
  select greatest(c.reltuples, 0)::bigint, p.parent, p.low, p.high into had, parent, low, high
  from paidonce.purgeable(keep_result, keep_key) p
  join pg_class c on c.oid = to_regclass(format('paidonce.%I', p.part))
  where p.part = name;
  if found then
    if parent = 'attempt' then
      insert into paidonce.floor as f (tenant, until)
      select b.tenant, max(b.updated_at) from paidonce.job b where b.part_on >= low and b.part_on < high group by b.tenant
      on conflict (tenant) do update set until = greatest(f.until, excluded.until);
    end if;
    execute format('drop table paidonce.%I', name);
  end if;
  return had;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function paidonce.purge_net(child text, keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = on as $$
declare
  gone int;
begin
  if child not in ('attempt', 'event', 'response', 'result', 'input', 'chunk') then
    raise exception 'no table of children: %', child;
  end if;
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  if child = 'attempt' then
    with old as (
      delete from paidonce.attempt_default where ctid = any (array(
        select c.ctid from paidonce.attempt_default c left join paidonce.job j on j.tenant = c.tenant and j.id = c.job
        where c.part_on < ((now() - keep) at time zone 'utc')::date
          and (j.id is null or j.state in ('done', 'failed', 'cancelled') and j.updated_at < now() - keep)
        limit purge_net.n for update of c skip locked))
      returning tenant, sent_at
    ), noted as (
      insert into paidonce.floor as f (tenant, until) select tenant, max(sent_at) from old group by tenant
      on conflict (tenant) do update set until = greatest(f.until, excluded.until)
    )
    select count(*) into gone from old;
    return gone;
  end if;
  execute format('delete from paidonce.%I where ctid = any (array(
      select c.ctid from paidonce.%1$I c left join paidonce.job j on j.tenant = c.tenant and j.id = c.job
      where c.part_on < ((now() - $1) at time zone ''utc'')::date
        and (j.id is null or j.state in (''done'', ''failed'', ''cancelled'') and j.updated_at < now() - $1)
      limit $2 for update of c skip locked))', child || '_default') using keep, n;
  get diagnostics gone = row_count;
  return gone;
end $$;
-- +goose StatementEnd

-- purge_counts deletes up to n counts of days that are past their retention, and returns how many.
-- +goose StatementBegin
create function paidonce.purge_counts(keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = on as $$
declare
  gone int;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  with old as (
    delete from paidonce.dup_count where ctid = any (array(
      select c.ctid from paidonce.dup_count c where c.day < ((now() - keep) at time zone 'utc')::date limit purge_counts.n for update skip locked))
    returning tenant, day
  ), noted as (
    insert into paidonce.floor as f (tenant, until)
    select tenant, (max(day) + 1)::timestamp at time zone 'utc' - interval '1 microsecond' from old group by tenant
    on conflict (tenant) do update set until = greatest(f.until, excluded.until)
  )
  select count(*) into gone from old;
  return gone;
end $$;
-- +goose StatementEnd
