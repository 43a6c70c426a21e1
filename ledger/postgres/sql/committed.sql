-- After a commit whose reply was lost: what became of it. The lock waits for a
-- server process that is still at it.
-- $1 tenant, $2 job, $3 result id
select state, fence, open_calls, coalesce(result_id = $3, false) as mine, false as done
from paidonce.job where tenant = $1 and id = $2 for update
