-- +goose Up

set local lock_timeout = '2s';

-- What was spent under limits of a day: a row for each tenant ('') and for each of its actions that has such a limit, made by
-- the first gate of the day. Jobs without limits have no row here and lock none. Whoever locks rows of it holds those of
-- the jobs already, and goes by its key.
create table paidonce.budget (
  tenant   text not null check (tenant <> ''),
  action   text not null,                -- '': all of the tenant's
  day      date not null,                -- in UTC, of the gate
  cap      bigint not null,              -- nano-USD, the limit that the latest gate passed
  cost     bigint not null default 0,
  reserved bigint not null default 0,    -- of attempts without an outcome
  primary key (tenant, action, day)
) with (fillfactor = 50); -- room on the page: updates are HOT

-- For people and for the purge; no update touches it.
create index budget_day on paidonce.budget (day);

-- Under which budgets an attempt was sent, and on which day: that of the tenant (1), of the action (2). Null: none.
alter table paidonce.attempt add column budgets smallint, add column budget_day date;

-- Ends a gate that a budget refuses: what it reserved on another one goes with its transaction.
-- +goose StatementBegin
create function paidonce.over_day() returns boolean language plpgsql as $$
begin
  raise exception 'the budget of the day has no room for the call' using errcode = 'POB20';
end $$;
-- +goose StatementEnd

-- purge_budgets deletes up to n budgets of days that are past their retention, and returns how many.
-- +goose StatementBegin
create function paidonce.purge_budgets(keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  gone int;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  delete from paidonce.budget where ctid = any (array(
    select b.ctid from paidonce.budget b where b.day < ((now() - keep) at time zone 'utc')::date limit n for update skip locked));
  get diagnostics gone = row_count;
  return gone;
end $$;
-- +goose StatementEnd
