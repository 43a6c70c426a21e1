-- Jobs of all tenants that the ledger should run from their stored input. They are not
-- owned: whoever is told claims them like any other.
-- ?1 now, ?2 the same less the grace, ?3 at most, ?4 whether of any action, ?5 else which, in JSON
select j.id, j.tenant, j.key, j.action, j.input_hash, i.body, j.origin
from paidonce_job j
left join paidonce_worker w on w.id = j.owner and w.epoch = j.owner_epoch and w.closed_at is null
join paidonce_input i on i.tenant = j.tenant and i.job = j.id
where j.state in ('ready', 'running', 'unknown')
  and ((j.state = 'ready' and j.next_at <= ?1 and (j.carrier = 'ledger' or j.next_at < ?2))
    or (j.state = 'running' and j.open_calls = 0 and (w.id is null or j.run_deadline <= ?1)
       and (j.carrier = 'ledger' or j.updated_at < ?2)))
  and (?4 or j.action in (select value from json_each(?5)))
limit ?3
