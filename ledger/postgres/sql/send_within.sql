-- J7 for attempts that are sent under budgets of the day: send.sql, and what they may cost is held on those, whose rows are
-- locked after the jobs', in the order of their keys. The jobs are locked by the statement before. One that did not fit when
-- the statement began is refused as by any other guard. One that fits no more once the rows are locked, or not
-- beside others of the batch, fails the statement, so that nothing of it happens; those of a batch are then asked for one by one.
-- Arguments as there, and $15 limits of tenants, $16 of their actions (0: none)
with j as materialized (
  select q.*, b.id, b.part_on, b.state, b.fence, b.run_deadline, b.open_calls, b.cancel, b.late, b.cost, b.reserved, b.budget,
    b.max_calls is null or b.attempts - coalesce(b.uncounted, 0) < b.max_calls as calls_left,
    coalesce(b.began_at, b.created_at) + b.lifetime as send_until, b.action
  from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::interval[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[]) with ordinality
    as q(tenant, job, held, attempt, call_name, input_key, route, provider, model, config, client_request_id, timeout, reserve, late_seen, tenant_cap, action_cap, item)
  join paidonce.job b on b.tenant = q.tenant and b.id = q.job
), n as materialized (
  select j.*, clock_timestamp() as now from j
), m as materialized (
  select n.*, (now at time zone 'utc')::date as day, coalesce(fence = held and state = 'running' and run_deadline > now and not cancel and late = late_seen and calls_left and coalesce(send_until > now, true)
    and (budget = 0 or reserve <= budget - coalesce(cost, 0) - reserved)
    and not exists (select from paidonce.attempt a where a.tenant = n.tenant and a.job = n.id and a.id = n.attempt), false) as may
  from n
), d as materialized (
  select m.*, may and o.over as over, may and not o.over as gated
  from m cross join lateral (
    select coalesce(bool_or(m.reserve > v.cap - coalesce(b.cost, 0) - coalesce(b.reserved, 0)), false) as over
    from (values ('', m.tenant_cap), (m.action, m.action_cap)) v(action, cap)
    left join paidonce.budget b on b.tenant = m.tenant and b.action = v.action and b.day = m.day
    where v.cap > 0
  ) o
), want as materialized (
  select d.tenant, v.action, d.day, min(v.cap) as cap, sum(d.reserve)::bigint as reserve
  from d cross join lateral (values ('', d.tenant_cap), (d.action, d.action_cap)) v(action, cap)
  where d.gated and v.cap > 0 group by 1, 2, 3
), held as (
  -- The guard is on the row as it is under its lock. What does not fit writes nothing here, and is missed below.
  insert into paidonce.budget as b (tenant, action, day, cap, reserved)
  select tenant, action, day, cap, reserve from want where reserve <= cap order by tenant, action, day
  on conflict (tenant, action, day) do update set reserved = b.reserved + excluded.reserved, cap = excluded.cap
  where excluded.reserved <= excluded.cap - b.cost - b.reserved
  returning b.tenant
), up as (
  update paidonce.job b set
    open_calls = b.open_calls + 1, attempts = b.attempts + 1, reserved = b.reserved + d.reserve,
    open_until = greatest(b.open_until, d.now + d.timeout), events = b.events + 1, updated_at = d.now
  from d
  where d.gated and b.tenant = d.tenant and b.id = d.id
  returning b.tenant, b.id, b.part_on, b.generation, b.attempts, b.fence, b.updated_at, b.events, b.owner,
    d.attempt, d.call_name, d.input_key, d.route, d.provider, d.model, d.config, d.client_request_id, d.timeout, d.reserve, d.late_seen,
    nullif((d.tenant_cap > 0)::int + 2 * (d.action_cap > 0)::int, 0) as budgets, d.day
), att as (
  insert into paidonce.attempt (tenant, job, id, part_on, generation, n, fence, state, call_name, input_key, route,
    provider, model, config, client_request_id, timeout, reserve, late_seen, sent_at, budgets, budget_day)
  select tenant, id, attempt, part_on, generation, attempts, fence, 'sent', call_name, input_key, route,
    provider, model, config, client_request_id, timeout, reserve, late_seen, updated_at, budgets, day
  from up
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, updated_at, 'running', 'running', owner,
    format('J7 send gate, attempt %s of call %s by route %s', attempts, call_name, route)
  from up
)
select d.item, d.state, d.fence, d.open_calls, d.cancel, d.late, d.cost, d.reserved, d.budget,
       coalesce(d.run_deadline <= d.now, false) as lapsed, d.calls_left, coalesce(d.send_until > d.now, true) as in_lifetime, d.gated, d.over
from d
where case when (select count(*) from held) = (select count(*) from want) then true else paidonce.over_day() end
