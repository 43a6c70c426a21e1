-- What the verbs of every call look at: a third of load.sql, which costs a third of its
-- time.
-- tenant, id
select state, generation, fence, owner, run_deadline, cancel, open_calls, attempts, events, late, cost, reserved, budget, result_id, action,
       created_at, max_calls, lifetime, uncounted, began_at
from paidonce_job where tenant = ? and id = ?
