-- J7: the send gate. The guards read the locked job row alone, by the clock as it is
-- once the lock is held, and the attempt is born sent. The row comes back in any
-- case, to say which guard failed.
-- $1 tenant, $2 job, $3 fence, $4 attempt, $5 call name, $6 input key, $7 route, $8 provider,
-- $9 model, $10 config, $11 client request id, $12 timeout, $13 reserve, $14 late answers seen
with j as materialized (
  select * from paidonce.job where tenant = $1 and id = $2 for update
), n as materialized (
  select j.*, clock_timestamp() as now from j
), up as (
  update paidonce.job b set
    open_calls = b.open_calls + 1, attempts = b.attempts + 1, reserved = b.reserved + $13::bigint,
    open_until = greatest(b.open_until, n.now + $12::interval), events = b.events + 1, updated_at = n.now
  from n
  where b.tenant = n.tenant and b.id = n.id
    and n.fence = $3 and n.state = 'running' and n.run_deadline > n.now and not n.cancel and n.late = $14
    and (n.budget = 0 or $13 <= n.budget - coalesce(n.cost, 0) - n.reserved) -- in this order: no overflow
  returning b.tenant, b.id, b.part_on, b.generation, b.attempts, b.fence, b.updated_at, b.events, b.owner
), att as (
  insert into paidonce.attempt (tenant, job, id, part_on, generation, n, fence, state, call_name, input_key, route,
    provider, model, config, client_request_id, timeout, reserve, late_seen, sent_at)
  select tenant, id, $4, part_on, generation, attempts, fence, 'sent', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, updated_at
  from up
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, updated_at, 'running', 'running', owner,
    format('J7 send gate, attempt %s of call %s by route %s', attempts, $5::text, $7::text)
  from up
)
select n.state, n.fence, n.open_calls, n.cancel, n.late, n.cost, n.reserved, n.budget,
       coalesce(n.run_deadline <= n.now, false) as lapsed,
       exists (select from up) as gated,
       case when exists (select from up) then false else exists (select from paidonce.attempt a
         where a.tenant = n.tenant and a.job = n.id and a.id = $4) end as repeated
from n
