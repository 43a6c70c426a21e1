-- All of a job that verbs change. The last two parameters are tenant and id.
update paidonce_job set
  state = ?, fence = ?, carrier = ?, owner = ?, owner_epoch = ?, claim_token = ?, run_deadline = ?, next_at = ?,
  unknown_at = ?, cancel = ?, runs = ?, panics = ?, replays = ?, receives = ?, open_calls = ?, attempts = ?, events = ?,
  late = ?, cost = ?, reserved = ?, budget = ?, max_calls = ?, lifetime = ?, uncounted = ?, began_at = ?, error_class = ?, error_text = ?, result_id = ?, updated_at = ?, done_at = ?
where tenant = ? and id = ?
