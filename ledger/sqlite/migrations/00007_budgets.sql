-- Flagged jobs of a worker, which asks for them each second.
create index paidonce_job_flagged on paidonce_job (owner) where cancel and owner is not null;
