-- Before the user's own work runs: is the result there already, and may it come?
-- Without a lock; the guards are asked again at the commit.
-- $1 tenant, $2 job, $3 result id
select state, fence, open_calls, coalesce(result_id = $3, false) as mine, false as done
from paidonce.job where tenant = $1 and id = $2
