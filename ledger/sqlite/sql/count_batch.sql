-- batch, id
update paidonce_worker set counted = ? where id = ?
