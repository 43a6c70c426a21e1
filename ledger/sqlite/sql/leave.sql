-- now, id, epoch
update paidonce_worker set closed_at = ? where id = ? and epoch = ? and closed_at is null
