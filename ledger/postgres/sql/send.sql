-- J7: the send gate. The guards read the locked job rows alone, by the clock as it is
-- once the lock is held, and the attempts are born sent. The rows come back in any
-- case, to say which guard failed. No job is twice among them. The attempt and the line of history are told from the locked row.
-- $1 tenants, $2 jobs, $3 fences, $4 attempts, $5 call names, $6 input keys, $7 routes, $8 providers,
-- $9 models, $10 configs, $11 client request ids, $12 timeouts, $13 reserves, $14 late answers seen
with d as materialized (
  select n.*, coalesce(fence = held and state = 'running' and run_deadline > now and not cancel and late = late_seen and calls_left and coalesce(send_until > now, true)
    and (budget = 0 or reserve <= budget - coalesce(cost, 0) - reserved), false) as gated -- in this order: no overflow
  from (
    select l.*, clock_timestamp() as now from (
      select q.*, b.part_on, b.state, b.generation, b.fence, b.owner, b.run_deadline, b.open_calls, b.attempts, b.events, b.cancel, b.late, b.cost, b.reserved, b.budget,
        b.max_calls is null or b.attempts - coalesce(b.uncounted, 0) < b.max_calls as calls_left,
        coalesce(b.began_at, b.created_at) + b.lifetime as send_until
      from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::interval[], $13::bigint[], $14::bigint[]) with ordinality
        as q(tenant, id, held, attempt, call_name, input_key, route, provider, model, config, client_request_id, timeout, reserve, late_seen, item)
      join paidonce.job b on b.tenant = q.tenant and b.id = q.id
      order by b.tenant, b.id for update of b
    ) l
  ) n
), up as (
  update paidonce.job b set
    open_calls = b.open_calls + 1, attempts = b.attempts + 1, reserved = b.reserved + d.reserve,
    open_until = greatest(b.open_until, d.now + d.timeout), events = b.events + 1, updated_at = d.now
  from d
  where d.gated and b.tenant = d.tenant and b.id = d.id
), att as (
  insert into paidonce.attempt (tenant, job, id, part_on, generation, n, fence, state, call_name, input_key, route,
    provider, model, config, client_request_id, timeout, reserve, late_seen, sent_at)
  select tenant, id, attempt, part_on, generation, attempts + 1, fence, 'sent', call_name, input_key, route,
    provider, model, config, client_request_id, timeout, reserve, late_seen, now
  from d where gated
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events + 1, part_on, now, 'running', 'running', owner,
    format('J7 send gate, attempt %s of call %s by route %s', attempts + 1, call_name, route)
  from d where gated
)
select d.item, d.state, d.fence, d.open_calls, d.cancel, d.late, d.cost, d.reserved, d.budget,
       coalesce(d.run_deadline <= d.now, false) as lapsed, d.calls_left, coalesce(d.send_until > d.now, true) as in_lifetime, d.gated
from d
