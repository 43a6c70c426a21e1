-- What reopening a locked job looks at beside its row: whether its input is there, whether the token was
-- used, and how many calls of its generation have an attempt closed as unknown, and no answer.
-- $1 tenant, $2 job, $3 token
select j.generation, j.part_on,
  exists (select from paidonce.input i where i.tenant = j.tenant and i.job = j.id and i.part_on = j.part_on) as input,
  exists (select from paidonce.rerun_token r where r.tenant = j.tenant and r.job = j.id and r.token = $3) as used,
  (select count(*) from (
    select from paidonce.attempt a
    where a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on and a.generation = j.generation
    group by a.call_name, a.input_key having bool_or(a.state = 'unknown') and not bool_or(a.state = 'received')) c) as unknown
from paidonce.job j where j.tenant = $1 and j.id = $2
