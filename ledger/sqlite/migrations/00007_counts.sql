-- Deliveries that were answered with a saved result. They are counted here and not on their job's row: a
-- duplicate changes no job.
create table paidonce_dup_count (
  tenant   text not null check (tenant <> ''),
  day      integer not null check (day % 86400000000 = 0), -- its midnight
  action   text not null,
  cause    text not null check (cause in ('redelivered', 'duplicate_message', 'ack_lost', 'submitted_again')),
  n        integer not null check (n > 0),
  saved    integer not null check (saved >= 0),            -- what the saved results had cost, as far as that is known
  unpriced integer not null check (unpriced between 0 and n), -- of n, those of results whose cost nobody knows
  primary key (tenant, day, action, cause)
) strict, without rowid;

-- For the purge alone.
create index paidonce_dup_count_day on paidonce_dup_count (day);

-- The latest batch of counts of the worker: a repeated one is recognised.
alter table paidonce_worker add column counted blob;

-- Up to when something of the tenant was forgotten: what reports count that is dated later is all there.
alter table paidonce_floor add column until integer not null default 0;

-- Of what was forgotten before, nobody noted when.
update paidonce_floor set until = cast(strftime('%s', 'now') as integer) * 1000000;
