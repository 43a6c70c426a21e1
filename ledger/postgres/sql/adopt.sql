-- J14 for all tenants: unknown jobs that are due for a look and that no live
-- reconciler owns, until the worker has enough under its token; and those it has.
-- $1 worker, $2 epoch, $3 at most, $4 token
with mine as materialized (
  select b.*, clock_timestamp() as now from paidonce.job b
  where b.state = 'unknown' and b.owner = $1 and b.owner_epoch = $2 and b.adoption = $4
), j as materialized (
  select b.* from paidonce.job b
  where b.state = 'unknown' and b.next_at <= clock_timestamp()
    and not exists (select from paidonce.worker w where w.id = b.owner and w.epoch = b.owner_epoch
      and w.closed_at is null and w.lease_until > clock_timestamp())
  limit greatest(0, $3 - (select count(*) from mine)) for update skip locked
), n as materialized (
  select j.*, clock_timestamp() as now, coalesce(e.looks, 0) as looks from j
  left join paidonce.event e on e.tenant = j.tenant and e.job = j.id and e.n = j.events and e.part_on = j.part_on
), up as (
  update paidonce.job b set
    fence = b.fence + 1, owner = $1, owner_epoch = $2, adoption = $4,
    events = b.events + case when n.looks = 0 then 1 else 0 end, updated_at = n.now
  from n where b.tenant = n.tenant and b.id = n.id
  returning b.*
), ev as (
  insert into paidonce.event as e (tenant, job, n, part_on, at, from_state, to_state, actor, reason, looks)
  select tenant, id, events, part_on, updated_at, 'unknown', 'unknown', $1, 'J14 adopt', 1 from up
  on conflict (tenant, job, n, part_on) do update set looks = e.looks + 1 -- the line of the look before
), a as (
  select tenant, key, id, part_on, fence, action, input_hash, replays, unknown_at, now from mine
  union all
  select tenant, key, id, part_on, fence, action, input_hash, replays, unknown_at, updated_at from up
)
select a.tenant, a.key, a.id, a.fence, a.action, a.input_hash, a.replays, a.now - a.unknown_at as since, a.now, i.body as input
from a
left join paidonce.input i on i.tenant = a.tenant and i.job = a.id and i.part_on = a.part_on
