-- On the line of the look itself, if nothing came between.
-- ?1 at, ?2 actor, ?3 reason, ?4 tenant, ?5 job, ?6 number of the last line
update paidonce_event set at = ?1, actor = ?2, reason = ?3 where tenant = ?4 and job = ?5 and n = ?6 and looks > 0
