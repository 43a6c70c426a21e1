-- Locks a job by its id and reads all that guards look at. The clock is read once
-- the lock is held, and used for everything that the transaction writes.
-- $1 tenant, $2 job
with j as materialized (
  select * from paidonce.job where tenant = $1 and id = $2 for update
)
select j.id, j.state, j.fence, j.open_calls, j.open_until, j.cancel, j.input_kept, j.carrier, j.owner, j.run_deadline,
       j.next_at, j.unknown_at, j.panics, j.replays, j.cost, j.reserved, j.budget, clock_timestamp() as now
from j
