-- May the user's rows for an answer be committed, or are they? It is asked before the user's own work runs, without a lock,
-- and after a commit whose reply was lost, with the job's row locked by the statement before. The first captured answer of a
-- call is its answer.
-- $1 tenant, $2 job, $3 attempt
select j.state, j.fence, a.n, a.state as attempt, a.applied_at is not null as applied, false as done,
  coalesce(a.generation = j.generation and a.captured is not null and not exists (
    select from paidonce.attempt o
    where o.tenant = a.tenant and o.job = a.job and o.part_on = a.part_on and o.generation = a.generation
      and o.call_name = a.call_name and o.input_key = a.input_key and o.captured < a.captured), false) as first_in
from paidonce.job j
left join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on and a.id = $3
where j.tenant = $1 and j.id = $2
