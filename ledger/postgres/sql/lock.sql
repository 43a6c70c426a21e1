-- Locks job rows, in the same pipeline and so in the same transaction as the statement
-- that follows. That one then has a snapshot from after the wait, and sees what
-- the locks' last holders wrote to other tables. In order, so that no two of these wait
-- for each other. A row comes back for each, of no columns.
-- $1 tenants, $2 jobs
select from unnest($1::text[], $2::bigint[]) as q(tenant, job)
join paidonce.job j on j.tenant = q.tenant and j.id = q.job
order by j.tenant, j.id for update of j
