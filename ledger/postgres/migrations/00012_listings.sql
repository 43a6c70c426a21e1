-- +goose Up

set local lock_timeout = '2s';

-- Nothing but indexes of jobs is made here: gates lock jobs before attempts, and settlements attempts before jobs, so a
-- step that locks both tables would wait for one of them for ever. An index that is there is kept: docs/operations.md tells
-- how to make them beforehand without stopping anybody.

-- Flagged jobs of a worker, which asks for them each second. A row enters it when a person flags it, and leaves it
-- with its owner; the owner is in another index, so no update of a job is less HOT for it.
create index if not exists job_flagged on paidonce.job (owner) where cancel and owner is not null;

-- Listings for people, newest first, each with an index: of an action here, of a tenant by the primary key, of all by this
-- one, action for action, and of open jobs by theirs. Its columns never change; it begins with what no hot statement asks by.
create index if not exists job_action on paidonce.job (action, id);

-- Jobs that ended without a result are few beside the others. They enter these when they end; the rest writes nothing.
create index if not exists job_failed on paidonce.job (state, id) where state in ('failed', 'cancelled');
create index if not exists job_failed_action on paidonce.job (action, state, id) where state in ('failed', 'cancelled');
create index if not exists job_failed_tenant on paidonce.job (tenant, state, id) where state in ('failed', 'cancelled');
