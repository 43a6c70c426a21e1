-- +goose Up

set local lock_timeout = '2s';

-- The steps that a job's results asked for. A step is a job of its own; this shows it under those who asked. Links
-- live as long as the row of the job that asked, and do not keep the step's.
create table paidonce.step (
  tenant     text not null check (tenant <> ''),
  job        bigint not null,            -- that asked
  key        text not null check (key <> ''), -- the step's
  generation int not null,               -- of the job, that asked last
  n          int not null,               -- place among what that generation asked for, from 1
  action     text not null,              -- as it was asked for: the key's row may be another's
  input_hash bytea not null check (octet_length(input_hash) = 32),
  primary key (tenant, job, key)
) with (fillfactor = 90);

-- For who asked for a step. It begins with the key, as that of the jobs does.
create index step_key on paidonce.step (key, tenant);

-- As before, and with their links.
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
  ), links as (
    delete from paidonce.step s using old where s.tenant = old.tenant and s.job = old.id
  ), noted as (
    insert into paidonce.floor as f (tenant, until) select tenant, max(updated_at) from old group by tenant
    on conflict (tenant) do update set until = greatest(f.until, excluded.until)
  )
  select count(*) into gone from old;
  return gone;
end $$;
-- +goose StatementEnd
