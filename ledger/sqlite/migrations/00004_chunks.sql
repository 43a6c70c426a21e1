-- Bodies that are too large for their row lie here. Their row holds a reference: a mark, their size, and
-- the SHA-256 by which the chunks are found.
create table paidonce_chunk (
  tenant text not null,
  job    integer not null,
  hash   blob not null,                  -- SHA-256 of the whole body
  n      integer not null,               -- of the chunk, from 0
  body   blob not null,
  primary key (tenant, job, hash, n)
) strict;
