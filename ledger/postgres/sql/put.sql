-- The messages of a result, into the outbox, in its transaction and after J10.
-- $1 tenant, $2 job, $3 result id, $4 actions, $5 bodies, $6 how long they are their worker's, $7 as in follow.sql
insert into paidonce.outbox (tenant, job, result, n, generation, action, origin, next_at, body)
select b.tenant, b.id, b.result_id, m.n, b.generation, m.action, b.origin, b.done_at + $6::interval, m.body
from paidonce.job b
cross join unnest($4::text[], $5::bytea[]) with ordinality as m(action, body, n)
where b.tenant = $1 and b.id = $2 and b.state = 'done' and b.result_id = $3
  and (not $7::boolean or b.xmin = pg_current_xact_id()::xid)
