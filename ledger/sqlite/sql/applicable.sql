-- What applying an answer looks at. The first captured answer of a call is its answer.
-- ?1 tenant, ?2 job, ?3 attempt, ?4 generation
select a.state, a.n, a.applied_at is not null, a.generation = ?4 and a.captured is not null and not exists (
    select 1 from paidonce_attempt o
    where o.tenant = a.tenant and o.job = a.job and o.generation = a.generation and o.call_name = a.call_name
      and o.input_key = a.input_key and o.captured < a.captured)
from paidonce_attempt a where a.tenant = ?1 and a.job = ?2 and a.id = ?3
