-- Retention. A job that has ended loses its bodies first and is deleted much later.

alter table paidonce_job add column purged integer not null default 0 check (purged in (0, 1)); -- it has no result, answers and input any more

-- For the purge alone: jobs enter it when they end. SQLite uses it for statements that repeat
-- its condition, word for word.
create index paidonce_job_ended on paidonce_job (purged, updated_at) where state in ('done', 'failed', 'cancelled');

-- The greatest id of the jobs of a tenant that were deleted: ids are not used again.
create table paidonce_floor (
  tenant text not null primary key,
  id     integer not null
) strict, without rowid;
