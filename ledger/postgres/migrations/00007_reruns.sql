-- +goose Up

set local lock_timeout = '2s';

-- Tokens of orders to run a job again: each does it once. They live as long as the job's row.
create table paidonce.rerun_token (
  tenant text not null,
  job    bigint not null,
  token  text not null check (token <> ''),
  at     timestamptz not null default clock_timestamp(),
  primary key (tenant, job, token)
);

-- As before, and with its tokens.
-- +goose StatementBegin
create or replace function paidonce.purge_keys(keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  gone int;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  with j as (
    delete from paidonce.job where ctid = any (array(
      select b.ctid from paidonce.job b
      where b.part_on < ((now() - keep) at time zone 'utc')::date
        and b.state in ('done', 'failed', 'cancelled') and b.updated_at < now() - keep
      limit n for update skip locked))
    returning tenant, id
  ), t as (
    delete from paidonce.rerun_token r using j where r.tenant = j.tenant and r.job = j.id
  )
  select count(*) into gone from j;
  return gone;
end $$;
-- +goose StatementEnd
