-- The rare claims of a row that exists: J2, J2x, J3, J3x, J4 and J19c, decided on
-- the locked row by the clock as it is then. A row that somebody else holds
-- locked is skipped: no row comes back, and the job is busy.
-- The tenant is compared as in claim_read.sql.
-- $1 tenant, $2 key, $3 claim token, $4 action, $5 input hash, $6 worker, $7 epoch,
-- $8 longest run, $9 most runs (0: no limit), $10 receives, $11 budget, $12 carrier, $13 most calls, $14 lifetime (null each: no limit)
with j as materialized (
  select * from paidonce.job where key = $2 and tenant = $1 collate "C" for update skip locked
), n as materialized (
  select j.*, clock_timestamp() as now from j
), f as materialized (
  select n.*, w.lease_until, w.id is null or coalesce(n.run_deadline <= n.now, false) as lapsed,
         $9 = 0 or n.runs < $9 as runs_left,
         exists (select from paidonce.worker where id = $6 and epoch = $7 and closed_at is null) as open
  from n left join paidonce.worker w on w.id = n.owner and w.epoch = n.owner_epoch and w.closed_at is null
), d as materialized (
  select f.*, case
    when action <> $4 or input_hash <> $5 then ''
    when state = 'ready' and next_at <= now then case when runs_left then 'J2' else 'J2x' end
    when state <> 'running' or claim_token = $3 or not lapsed then ''
    when open_calls > 0 then 'J4'
    when cancel then 'J19c'
    when runs_left then 'J3'
    else 'J3x' end as rule
  from f
), r as materialized (
  -- Who is closed itself may find a job's end, but not run it.
  select d.*, rule in ('J2', 'J3') as starts, rule in ('J2x', 'J3x') as ends from d where rule not in ('J2', 'J3') or open
), up as (
  update paidonce.job b set
    state = case when starts then 'running' when rule = 'J4' then 'unknown' when rule = 'J19c' then 'cancelled' else 'failed' end,
    fence = b.fence + (rule <> 'J2x')::int,
    owner = case when starts then $6 end,
    owner_epoch = case when starts then $7::bigint end,
    claim_token = case when starts then $3 end,
    run_deadline = case when starts then now + $8::interval end,
    runs = b.runs + starts::int,
    budget = case when starts then $11 else b.budget end,
    max_calls = case when starts then $13::int else b.max_calls end,
    lifetime = case when starts then $14::interval else b.lifetime end,
    carrier = case when b.input_kept and (rule = 'J4' or starts and $12 = 'ledger') then 'ledger' else b.carrier end,
    unknown_at = case when rule = 'J4' then now end,
    next_at = case when rule = 'J4' then now else b.next_at end,
    error_class = case when ends then 'exhausted' else b.error_class end,
    error_text = case when ends then format('%s of %s runs ended without a result', b.runs, $9)
      || coalesce('; the last one: ' || b.error_class || ': ' || b.error_text, '') else b.error_text end,
    receives = case when starts or ends then greatest(b.receives, $10) else b.receives end,
    events = b.events + 1, updated_at = now
  from r where r.rule <> '' and b.tenant = r.tenant and b.id = r.id
  returning b.*
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select up.tenant, up.id, up.events, up.part_on, up.updated_at, d.state, up.state, $6,
    case d.rule
      when 'J2' then format('J2 claim, run %s', up.runs)
      when 'J2x' then 'J2x runs exhausted'
      when 'J3' then format('J3 take over, run %s', up.runs)
      when 'J3x' then 'J3x runs exhausted by deaths'
      when 'J4' then format('J4 lapse, %s open', up.open_calls)
      else 'J19c cancel a flagged job that lapsed' end
  from up join d on d.tenant = up.tenant and d.id = up.id
)
select d.id, d.action, d.input_hash, coalesce(up.state, d.state) as state, coalesce(up.fence, d.fence) as fence,
       d.generation, coalesce(up.carrier, d.carrier) as carrier, coalesce(up.runs, d.runs) as runs,
       d.open_calls, d.cancel, d.cost,
       coalesce(up.error_class, d.error_class) as error_class, coalesce(up.error_text, d.error_text) as error_text,
       coalesce(coalesce(up.claim_token, d.claim_token) = $3, false) as mine, d.lapsed,
       coalesce(coalesce(up.run_deadline, d.run_deadline) - d.now, '0') as run_left,
       coalesce(least(d.lease_until, d.run_deadline) - d.now, '0') as lease_left,
       coalesce(up.next_at, d.next_at) - d.now as due_in,
       r.id as result_id, r.body, r.schema_name,
       case when d.rule <> '' and up.id is null then 'closed' else d.rule end as rule
from d
left join up on up.tenant = d.tenant and up.id = d.id
left join paidonce.result r on r.tenant = d.tenant and r.job = d.id and r.generation = d.generation
     and r.part_on = d.part_on and d.state = 'done'
