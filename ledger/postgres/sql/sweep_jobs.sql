-- J4 and J19c for all tenants: running jobs whose owner's epoch is closed or whose run
-- deadline is over, and which have open calls or are flagged. Locked rows wait for
-- the next sweep.
-- $1 at most
with j as materialized (
  select b.* from paidonce.job b
  where b.state = 'running' and (b.open_calls > 0 or b.cancel)
    and (b.run_deadline <= clock_timestamp() or not exists (select from paidonce.worker w
      where w.id = b.owner and w.epoch = b.owner_epoch and w.closed_at is null))
  limit $1 for update skip locked
), n as materialized (
  select j.*, clock_timestamp() as now from j
), up as (
  update paidonce.job b set
    state = case when n.open_calls > 0 then 'unknown' else 'cancelled' end,
    fence = b.fence + 1, owner = null, owner_epoch = null, claim_token = null, run_deadline = null,
    carrier = case when n.open_calls > 0 and b.input_kept then 'ledger' else b.carrier end,
    unknown_at = case when n.open_calls > 0 then n.now end,
    next_at = case when n.open_calls > 0 then n.now else b.next_at end, events = b.events + 1, updated_at = n.now
  from n where b.tenant = n.tenant and b.id = n.id
  returning b.tenant, b.key, b.id, b.part_on, b.events, b.updated_at, b.state, b.open_calls
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, updated_at, 'running', state, 'sweeper',
    case state when 'unknown' then format('J4 lapse, %s open', open_calls) else 'J19c cancel a flagged job that lapsed' end
  from up
)
select tenant, key, state from up
