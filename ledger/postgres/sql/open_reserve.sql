-- What the open attempts of a job hold back. It runs under the job's lock, after the statement that took it, so its
-- snapshot has all that was written of them: no attempt changes without that lock.
-- $1 tenant, $2 job
select coalesce(sum(a.reserve), 0)::bigint as reserve
from paidonce.job j
join paidonce.attempt a on a.tenant = j.tenant and a.job = j.id and a.part_on = j.part_on
where j.tenant = $1 and j.id = $2 and a.state = 'sent'
