-- +goose Up

set local lock_timeout = '2s';

-- Two indexes that begin with the tenant look alike to a planner that knows nothing of the table
-- yet, and it found jobs by their tenant alone: the one of the key, which reads all jobs of a
-- tenant for one id, and keeps that plan until the table is analysed. This one begins with
-- what tells jobs apart.
alter table paidonce.job
  drop constraint job_tenant_key_key,
  add constraint job_key_tenant_key unique (key, tenant);
