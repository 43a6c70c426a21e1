-- Chunks of a body of a job that is there. The same body is the same chunks. The lock keeps the job in
-- the partition that they are written to.
-- $1 tenant, $2 job, $3 hash, $4 numbers, $5 bodies
with j as materialized (
  select tenant, id, part_on from paidonce.job where tenant = $1 and id = $2 for share
)
insert into paidonce.chunk (tenant, job, hash, n, part_on, body)
select j.tenant, j.id, $3, q.n, j.part_on, q.body
from j cross join unnest($4::int[], $5::bytea[]) as q(n, body)
on conflict do nothing
