-- J14 for all tenants: unknown jobs that are due for a look and that no live
-- reconciler owns.
-- $1 worker, $2 epoch, $3 at most
with j as materialized (
  select b.* from paidonce.job b
  where b.state = 'unknown' and b.next_at <= clock_timestamp()
    and not exists (select from paidonce.worker w where w.id = b.owner and w.epoch = b.owner_epoch
      and w.closed_at is null and w.lease_until > clock_timestamp())
  limit $3 for update skip locked
), n as materialized (
  select j.*, clock_timestamp() as now from j
), up as (
  update paidonce.job b set fence = b.fence + 1, owner = $1, owner_epoch = $2, events = b.events + 1, updated_at = n.now
  from n where b.tenant = n.tenant and b.id = n.id
  returning b.tenant, b.key, b.id, b.part_on, b.fence, b.events, b.action, b.input_hash, b.replays, b.unknown_at, b.updated_at
), ev as (
  insert into paidonce.event (tenant, job, n, part_on, at, from_state, to_state, actor, reason)
  select tenant, id, events, part_on, updated_at, 'unknown', 'unknown', $1, 'J14 adopt' from up
)
select up.tenant, up.key, up.id, up.fence, up.action, up.input_hash, up.replays,
       up.updated_at - up.unknown_at as since, up.updated_at as now, i.body as input
from up
left join paidonce.input i on i.tenant = up.tenant and i.job = up.id and i.part_on = up.part_on
