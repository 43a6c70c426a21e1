-- The job's input is stored now. A claim carried by the ledger makes it the ledger's.
-- ?1 whether the claim is, ?2 tenant, ?3 job, ?4 fence
update paidonce_job set input_kept = 1, carrier = case when ?1 then 'ledger' else carrier end
where tenant = ?2 and id = ?3 and fence = ?4 and state = 'running' and not input_kept
returning carrier
