-- Whether an attempt is on record, which a gate that is asked again is refused for first.
-- $1 tenant, $2 job, $3 attempt
select exists (select from paidonce.attempt a where a.tenant = $1 and a.job = $2 and a.id = $3) as found
