-- +goose Up

set local lock_timeout = '2s';

-- Messages that results asked for, until a broker has them. Rows are few and short-lived, but for an outage of the broker.
create table paidonce.outbox (
  tenant     text not null check (tenant <> ''),
  job        bigint not null,            -- that asked
  result     uuid not null,              -- with which it asked
  n          int not null,               -- place among what that result asked for, from 1
  generation int not null,               -- of the job
  action     text not null,              -- the job that it is for
  origin     jsonb,                      -- that of the job that asked
  next_at    timestamptz not null,       -- nobody is given it before
  body       bytea compression lz4 not null,
  primary key (tenant, job, result, n)
) with (autovacuum_vacuum_scale_factor = 0.05);

create index outbox_due on paidonce.outbox (next_at);

-- outbox_drop forgets messages that a broker has confirmed. It runs with the rights of the table's owner: whoever runs jobs
-- needs no right to delete.
-- +goose StatementBegin
create function paidonce.outbox_drop(tenants text[], jobs bigint[], results uuid[], ns int[]) returns int
language plpgsql security definer
set search_path = pg_catalog set enable_seqscan = off as $$
declare
  gone int;
begin
  delete from paidonce.outbox o using unnest(tenants, jobs, results, ns) as d(tenant, job, result, n)
  where o.tenant = d.tenant and o.job = d.job and o.result = d.result and o.n = d.n;
  get diagnostics gone = row_count;
  return gone;
end $$;
-- +goose StatementEnd
