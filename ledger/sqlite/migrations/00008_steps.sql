-- The steps that a job's results asked for. A step is a job of its own; this shows it under those who asked. Links
-- live as long as the row of the job that asked, and do not keep the step's.
create table paidonce_step (
  tenant     text not null check (tenant <> ''),
  job        integer not null,           -- that asked
  key        text not null check (key <> ''), -- the step's
  generation integer not null,           -- of the job, that asked last
  n          integer not null,           -- place among what that generation asked for, from 1
  action     text not null,              -- as it was asked for: the key's row may be another's
  input_hash blob not null check (length(input_hash) = 32),
  primary key (tenant, job, key)
) strict, without rowid;

-- For who asked for a step.
create index paidonce_step_key on paidonce_step (tenant, key);
