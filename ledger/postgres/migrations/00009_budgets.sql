-- +goose Up

set local lock_timeout = '2s';

-- Flagged jobs of a worker, which asks for them each second. A row enters it when a person flags it, and leaves it
-- with its owner; the owner is in another index, so no update of a job is less HOT for it.
create index job_flagged on paidonce.job (owner) where cancel and owner is not null;
