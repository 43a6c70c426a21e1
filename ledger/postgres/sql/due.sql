-- Jobs of all tenants that the ledger should run from their stored input. Not
-- locked and not owned: whoever is told claims them like any other.
-- $1 at most, $2 grace, $3 actions, null for any
select j.id, j.tenant, j.key, j.action, j.input_hash, j.origin, i.body
from (
  select b.* from paidonce.job b
  left join paidonce.worker w on w.id = b.owner and w.epoch = b.owner_epoch and w.closed_at is null
  where b.input_kept and ($3::text[] is null or b.action = any($3))
    and ((b.state = 'ready' and b.next_at <= clock_timestamp())
      or (b.state = 'running' and b.open_calls = 0
          and (w.id is null or b.run_deadline <= clock_timestamp())))
    and (b.carrier = 'ledger'
      or case b.state when 'ready' then b.next_at else b.updated_at end + $2::interval < clock_timestamp())
  limit $1
) j
join paidonce.input i on i.tenant = j.tenant and i.job = j.id and i.part_on = j.part_on
