-- J8 and J9: what came back of attempts, or more evidence on them. No fence: who lost
-- a job may still report. The job rows are locked by the statement before, and none is twice
-- among them: what is read of them here is what is changed. The answer, and evidence that
-- is for the attempt's row alone, are taken by their place. What few settlements need is in functions.
-- $1 tenants, $2 jobs, $3 attempts, $4 states, $5 kinds of actor, $6 asked at, $7 settle windows,
-- $8 classes, $9 who, $10 reasons, $11 statuses, $12 provider request ids, $13 object ids,
-- $14 first bytes, $15-17 tokens in, cached, out, $18 costs, $19 cost sources,
-- $20 codecs, $21 bodies or nulls
with d as materialized (
  select r.*, r.rule in ('J8', 'J9') as ends, r.rule = 'J8' and (r.state = 'done' or r.of_generation < r.generation) as wasted,
    r.open_calls - (r.rule in ('J8', 'J9') and r.was = 'sent')::int as others_open, r.rule = 'same' and r.was_seen_by <> r.seen_by as known
  from (
    select n.*, case
      when was in ('sent', 'unknown') and outcome = 'sent' then 'note'
      when was = outcome then 'same'
      when outcome = 'received' then 'J8'
      when was not in ('sent', 'unknown') then 'state'
      -- A request that was sent just before the lookup may still land.
      when seen_by = 'reconciler' and not (n.settle_window > '0' and least(coalesce(n.asked, '-infinity'), now) > n.sent_at + n.settle_window) then 'early'
      else 'J9' end as rule
    from (
      select q.*, j.part_on, j.action, j.state, j.generation, j.open_calls, j.events,
        a.state as was, a.n, a.cost as had, a.reserve, a.generation as of_generation, a.fence as of_fence,
        a.call_name, a.input_key, a.surplus, a.sent_at, a.seen_by as was_seen_by, a.budgets, a.budget_day, clock_timestamp() as now
      from unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[], $7::interval[],
        $9::text[], $10::text[], $18::bigint[]) with ordinality
        as q(tenant, id, attempt, outcome, seen_by, asked, settle_window, who, reason, cost, item)
      join paidonce.job j on j.tenant = q.tenant and j.id = q.id
      join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.id = q.attempt and a.part_on = j.part_on
    ) n offset 0
  ) r
), att as (
  update paidonce.attempt a set
    state = case when d.ends then d.outcome else a.state end,
    ended_at = case when d.ends then d.now else a.ended_at end,
    captured = case when d.rule = 'J8' then d.events + 1 end,
    class = coalesce(nullif(($8::text[])[d.item], ''), a.class), seen_by = d.seen_by,
    who = coalesce(nullif(d.who, ''), a.who), reason = coalesce(nullif(d.reason, ''), a.reason),
    status = coalesce(nullif(($11::int[])[d.item], 0), a.status),
    provider_request_id = coalesce(nullif(($12::text[])[d.item], ''), a.provider_request_id),
    object_id = coalesce(nullif(($13::text[])[d.item], ''), a.object_id),
    first_byte = coalesce(($14::interval[])[d.item], a.first_byte),
    tokens_in = coalesce(($15::bigint[])[d.item], a.tokens_in), tokens_cached = coalesce(($16::bigint[])[d.item], a.tokens_cached),
    tokens_out = coalesce(($17::bigint[])[d.item], a.tokens_out),
    cost = coalesce(d.cost, d.had), cost_source = coalesce(nullif(($19::text[])[d.item], ''), a.cost_source),
    surplus = a.surplus or d.wasted
  from d
  where (d.ends or d.rule = 'note') and a.tenant = d.tenant and a.job = d.id and a.id = d.attempt and a.part_on = d.part_on
), resp as (
  insert into paidonce.response (tenant, job, attempt, part_on, codec, body)
  select tenant, id, attempt, part_on, ($20::text[])[item], ($21::bytea[])[item] from d where rule = 'J8'
), m as materialized (
  select c.*, ends and state = 'unknown' and left_open = 0 as frees from (
    select item, tenant, id, attempt, part_on, action, state, generation, of_generation, of_fence, was, n, outcome, rule, ends, known, surplus or wasted as surplus,
      call_name, input_key, reserve, coalesce(cost, had) as costs, had, who, reason, seen_by, budgets, budget_day, events, now,
      -- The first captured answer of a call wins; what is still open of it is not waited for. Most jobs have no other open call.
      others_open - case when rule = 'J8' and others_open > 0
        then paidonce.close_others(tenant, id, part_on, of_generation, call_name, input_key, attempt, now) else 0 end as left_open
    from d offset 0
  ) c
), up as (
  update paidonce.job b set
    open_calls = m.left_open,
    open_until = case when m.left_open = 0 then null when not m.ends then b.open_until
      else paidonce.open_until(m.tenant, m.id, m.part_on, m.attempt) end,
    reserved = b.reserved - case when m.ends and m.was in ('sent', 'unknown') then m.reserve else 0 end,
    cost = case when m.costs is null then b.cost else coalesce(b.cost, 0) + m.costs - coalesce(m.had, 0) end,
    late = b.late + (m.rule = 'J8' and (m.of_fence <> b.fence or m.was <> 'sent'))::int,
    uncounted = case when m.of_generation = m.generation and (m.outcome = 'not_sent') <> (m.was = 'not_sent')
      then coalesce(b.uncounted, 0) + case when m.outcome = 'not_sent' then 1 else -1 end else b.uncounted end,
    state = case when m.frees then 'ready' else b.state end,
    owner = case when m.frees then null else b.owner end,
    owner_epoch = case when m.frees then null else b.owner_epoch end,
    unknown_at = case when m.left_open = 0 then null else b.unknown_at end,
    next_at = case when m.frees then m.now else b.next_at end,
    events = b.events + m.ends::int,
    updated_at = m.now
  from m where (m.ends or m.rule = 'note') and b.tenant = m.tenant and b.id = m.id
), spent as materialized (
  select case when count(*) > 0 then paidonce.spend(array_agg(row(m.tenant, m.action, m.budget_day, m.budgets,
    case when m.ends and m.was in ('sent', 'unknown') then m.reserve else 0 end,
    case when m.costs is null then 0 else m.costs - coalesce(m.had, 0) end)::paidonce.spending)) end as budgets
  from m where m.budgets > 0 and (m.ends or m.rule = 'note')
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events + 1, part_on, now, state, case when frees then 'ready' else state end, coalesce(nullif(who, ''), seen_by),
    format('%s %s, attempt %s %s', rule, case rule when 'J8' then 'answer captured' else 'definitely no answer' end, n, outcome)
      || coalesce(': ' || nullif(reason, ''), '')
  from m where ends
)
select item, rule, was, case when frees then 'ready' else state end as state, surplus, known
from m cross join spent
