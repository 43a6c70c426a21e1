-- Tokens of orders to run a job again: each does it once.
create table paidonce_rerun (
  tenant text not null,
  job    integer not null,
  token  text not null,
  at     integer not null,
  primary key (tenant, job, token)
) strict, without rowid;
