-- Flagged jobs of a worker, which asks for them each second.
create index paidonce_job_flagged on paidonce_job (owner) where cancel and owner is not null;

-- Listings for people, newest first; of one tenant by the primary key, of open jobs by their index. The first two have
-- columns that never change, so they cost one entry a job. Jobs that ended without a result are few beside the others.
create index paidonce_job_created on paidonce_job (created_at);
create index paidonce_job_action on paidonce_job (action, created_at);
create index paidonce_job_failed on paidonce_job (state, created_at) where state in ('failed', 'cancelled');
create index paidonce_job_failed_action on paidonce_job (state, action, created_at) where state in ('failed', 'cancelled');
create index paidonce_job_failed_tenant on paidonce_job (tenant, state, id) where state in ('failed', 'cancelled');

-- What was spent under limits of a day: a row for each tenant ('') and for each of its actions that has such a limit.
create table paidonce_budget (
  tenant   text not null check (tenant <> ''),
  action   text not null,                -- '': all of the tenant's
  day      integer not null check (day % 86400000000 = 0), -- its midnight
  cap      integer not null,             -- the limit that the latest gate passed
  cost     integer not null default 0,
  reserved integer not null default 0,   -- of attempts without an outcome
  primary key (tenant, action, day)
) strict, without rowid;

-- For people and for the purge.
create index paidonce_budget_day on paidonce_budget (day);

-- Under which budgets an attempt was sent, and on which day: that of the tenant (1), of the action (2). Null: none.
alter table paidonce_attempt add column budgets integer;
alter table paidonce_attempt add column budget_day integer;
