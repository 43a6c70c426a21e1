-- Flagged jobs of a worker, which asks for them each second.
create index paidonce_job_flagged on paidonce_job (owner) where cancel and owner is not null;

-- Listings for people, newest first; of one tenant by the primary key, of open jobs by their index. The first two have
-- columns that never change, so they cost one entry a job. Jobs that ended without a result are few beside the others.
create index paidonce_job_created on paidonce_job (created_at);
create index paidonce_job_action on paidonce_job (action, created_at);
create index paidonce_job_failed on paidonce_job (state, created_at) where state in ('failed', 'cancelled');
create index paidonce_job_failed_action on paidonce_job (state, action, created_at) where state in ('failed', 'cancelled');
create index paidonce_job_failed_tenant on paidonce_job (tenant, state, id) where state in ('failed', 'cancelled');
