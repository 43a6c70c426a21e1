-- J10 on the job's row.
-- result id, ?2 now, tenant, id
update paidonce_job set state = 'done', result_id = ?1, done_at = ?2, updated_at = ?2, owner = null, owner_epoch = null,
  claim_token = null, run_deadline = null, error_class = null, error_text = null, events = events + 1
where tenant = ?3 and id = ?4
