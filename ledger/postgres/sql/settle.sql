-- J8 and J9: what came back of an attempt, or more evidence on it. No fence: who lost
-- the job may still report. The job row is locked by the statement before.
-- $1 tenant, $2 job, $3 attempt, $4 state, $5 kind of actor, $6 asked at, $7 settle window,
-- $8 class, $9 who, $10 reason, $11 status, $12 provider request id, $13 object id,
-- $14 first byte, $15-17 tokens in, cached, out, $18 cost, $19 cost source,
-- $20 codec, $21 body or null
with n as materialized (
  select j.tenant, j.id, j.part_on, j.state, j.generation, j.fence, j.open_calls, j.events,
    a.state as was, a.n, a.cost as had, a.reserve, a.generation as of_generation, a.fence as of_fence,
    a.call_name, a.input_key, a.surplus, a.sent_at, clock_timestamp() as now
  from paidonce.job j
  join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.id = $3 and a.part_on = j.part_on
  where j.tenant = $1 and j.id = $2
), r as materialized (
  select n.*, case
      when was in ('sent', 'unknown') and $4 = 'sent' then 'note'
      when was = $4 then 'same'
      when $4 = 'received' then 'J8'
      when was not in ('sent', 'unknown') then 'state'
      -- A request that was sent just before the lookup may still land.
      when $5 = 'reconciler' and not ($7::interval > '0' and least(coalesce($6::timestamptz, '-infinity'), now) > sent_at + $7) then 'early'
      else 'J9' end as rule,
    coalesce($18::bigint, had) as costs
  from n
), d as materialized (
  select r.*, rule in ('J8', 'J9') as ends, rule = 'J8' and (state = 'done' or of_generation < generation) as wasted
  from r where rule in ('J8', 'J9', 'note')
), others as (
  -- The first captured answer of a call wins; what is still open of it is not waited for.
  update paidonce.attempt o set state = 'unknown', ended_at = d.now
  from d
  where d.rule = 'J8' and o.tenant = d.tenant and o.job = d.id and o.part_on = d.part_on
    and o.generation = d.of_generation and o.call_name = d.call_name and o.input_key = d.input_key
    and o.state = 'sent' and o.id <> $3
  returning o.id
), att as (
  update paidonce.attempt a set
    state = case when d.ends then $4 else a.state end,
    ended_at = case when d.ends then d.now else a.ended_at end,
    captured = case when d.rule = 'J8' then d.events + 1 end,
    class = coalesce(nullif($8, ''), a.class), seen_by = $5,
    who = coalesce(nullif($9, ''), a.who), reason = coalesce(nullif($10, ''), a.reason),
    status = coalesce(nullif($11, 0), a.status),
    provider_request_id = coalesce(nullif($12, ''), a.provider_request_id),
    object_id = coalesce(nullif($13, ''), a.object_id),
    first_byte = coalesce($14, a.first_byte),
    tokens_in = coalesce($15, a.tokens_in), tokens_cached = coalesce($16, a.tokens_cached), tokens_out = coalesce($17, a.tokens_out),
    cost = d.costs, cost_source = coalesce(nullif($19, ''), a.cost_source),
    surplus = a.surplus or d.wasted
  from d
  where a.tenant = d.tenant and a.job = d.id and a.id = $3 and a.part_on = d.part_on
), resp as (
  insert into paidonce.response (tenant, job, attempt, part_on, codec, body)
  select tenant, id, $3, part_on, $20, $21::bytea from d where rule = 'J8'
), c as materialized (
  select d.*, d.open_calls - (d.ends and d.was = 'sent')::int - (select count(*) from others) as left_open from d
), up as (
  update paidonce.job b set
    open_calls = c.left_open,
    open_until = case when c.left_open = 0 then null when not c.ends then b.open_until else (
      select max(o.sent_at + o.timeout) from paidonce.attempt o
      where o.tenant = c.tenant and o.job = c.id and o.part_on = c.part_on and o.state = 'sent' and o.id <> $3
        and not (c.rule = 'J8' and o.generation = c.of_generation and o.call_name = c.call_name and o.input_key = c.input_key)) end,
    reserved = b.reserved - case when c.ends and c.was in ('sent', 'unknown') then c.reserve else 0 end,
    cost = case when c.costs is null then b.cost else coalesce(b.cost, 0) + c.costs - coalesce(c.had, 0) end,
    late = b.late + (c.rule = 'J8' and c.of_fence <> b.fence)::int,
    state = case when b.state = 'unknown' and c.left_open = 0 then 'ready' else b.state end,
    owner = case when b.state = 'unknown' and c.left_open = 0 then null else b.owner end,
    owner_epoch = case when b.state = 'unknown' and c.left_open = 0 then null else b.owner_epoch end,
    unknown_at = case when c.left_open = 0 then null else b.unknown_at end,
    next_at = case when b.state = 'unknown' and c.left_open = 0 then c.now else b.next_at end,
    events = b.events + c.ends::int,
    updated_at = c.now
  from c where b.tenant = c.tenant and b.id = c.id
  returning b.tenant, b.id, b.part_on, b.state, b.events, b.updated_at
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select up.tenant, up.id, up.events, up.part_on, up.updated_at, c.state, up.state, coalesce(nullif($9, ''), $5),
    format('%s %s, attempt %s %s', c.rule, case c.rule when 'J8' then 'answer captured' else 'definitely no answer' end, c.n, $4)
      || coalesce(': ' || nullif($10, ''), '')
  from up join c on c.tenant = up.tenant and c.id = up.id
  where c.ends
)
select r.rule, r.was, coalesce((select up.state from up), r.state) as state,
       r.surplus or coalesce((select d.wasted from d), false) as surplus
from r
