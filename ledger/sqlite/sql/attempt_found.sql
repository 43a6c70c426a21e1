-- What settling looks at.
-- tenant, job, id
select state, n, generation, fence, call_name, input_key, reserve, sent_at, ended_at, cost, surplus, captured, seen_by, budgets, budget_day
from paidonce_attempt where tenant = ? and job = ? and id = ?
