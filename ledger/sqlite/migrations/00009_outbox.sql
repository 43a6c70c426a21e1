-- Messages that results asked for, until a broker has them.
create table paidonce_outbox (
  tenant     text not null check (tenant <> ''),
  job        integer not null,           -- that asked
  result     blob not null,              -- with which it asked
  n          integer not null,           -- place among what that result asked for, from 1
  generation integer not null,           -- of the job
  action     text not null,              -- the job that it is for
  origin     text,                       -- that of the job that asked, as its row has it
  next_at    integer not null,           -- nobody is given it before
  body       blob not null,
  primary key (tenant, job, result, n)
) strict;

create index paidonce_outbox_due on paidonce_outbox (next_at);
