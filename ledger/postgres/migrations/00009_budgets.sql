-- +goose Up

set local lock_timeout = '2s';

-- Flagged jobs of a worker, which asks for them each second. A row enters it when a person flags it, and leaves it
-- with its owner; the owner is in another index, so no update of a job is less HOT for it.
create index job_flagged on paidonce.job (owner) where cancel and owner is not null;

-- Listings for people, newest first, each with an index: of an action here, of a tenant by the primary key, of all by this
-- one, action for action, and of open jobs by theirs. Its columns never change; it begins with what no hot statement asks by.
create index job_action on paidonce.job (action, id);

-- Jobs that ended without a result are few beside the others. They enter these when they end; the rest writes nothing.
create index job_failed on paidonce.job (state, id) where state in ('failed', 'cancelled');
create index job_failed_action on paidonce.job (action, state, id) where state in ('failed', 'cancelled');
create index job_failed_tenant on paidonce.job (tenant, state, id) where state in ('failed', 'cancelled');
