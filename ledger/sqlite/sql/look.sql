-- What is known of one call: its attempts and the job's count of late answers, of
-- one snapshot. An answer that is captured after it under an older fence raises the
-- count, and the gate refuses the old one.
-- ?1 tenant, ?2 job, ?3 call name, ?4 input key
select j.fence, j.late, j.panics, count(a.id), coalesce(sum(a.state = 'sent'), 0), coalesce(sum(a.state = 'received'), 0)
from paidonce_job j
left join paidonce_attempt a on a.tenant = j.tenant and a.job = j.id and a.generation = j.generation
     and a.call_name = ?3 and a.input_key = ?4
where j.tenant = ?1 and j.id = ?2
group by j.id
